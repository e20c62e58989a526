"""The reports of results: `terminal` for people, `formats` for programs."""
