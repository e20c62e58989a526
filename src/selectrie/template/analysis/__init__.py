"""What is known of a template before it is rendered."""
