"""Results for readers: `terminal` for people, `formats` for programs."""
