"""What tools/float32-error is made of: what is multiplied (inputs, mixtures), by whom (arms), how far off that is (referee,
measure, search), and how to show it (the rest)."""
