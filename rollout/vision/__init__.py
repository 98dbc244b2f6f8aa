"""Images in conversations of models that see: how many tokens an image is, and where they lie."""
