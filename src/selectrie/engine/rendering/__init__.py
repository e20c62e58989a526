"""Templates rendered: pages, their slots and joint blocks."""
