"""What was done, provably: the audit log's hash chains and their signed heads, deletions, and the receipts for them."""
