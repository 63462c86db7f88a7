"""Who comes in, and how many: keys and their revocation, rates and quotas, and the admission of contexts."""
