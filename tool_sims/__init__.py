"""First-party tool simulators."""
