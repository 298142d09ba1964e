"""The configs that are shipped with spade-agentic; ``spade-agentic train NAME.yaml`` finds them by name."""
