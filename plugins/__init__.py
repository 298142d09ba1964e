"""First-party plugins, each laid out as a third party would."""
