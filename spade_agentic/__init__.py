"""spade-agentic: one language model designs its own training worlds and learns to act in them."""
__version__ = "0.1.0"
