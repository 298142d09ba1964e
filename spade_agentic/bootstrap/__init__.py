"""How ``spade-tiny`` is made: tokenizer, demonstrations, warm start. Its weights lie in ``spade_tiny`` beside this file."""
