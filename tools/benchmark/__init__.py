"""What tools/bench is made of: what to measure (plan), how (arms, clock, measure), and how to show it (the rest)."""
