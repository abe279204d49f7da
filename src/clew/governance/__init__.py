"""Gates at work: where they stand, what they are shown, who asks them, how streams pass them."""
