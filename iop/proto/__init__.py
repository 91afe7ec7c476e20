"""Code generated from ``proto/``; ``make proto`` writes it again."""
