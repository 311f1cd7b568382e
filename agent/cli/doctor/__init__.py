"""`penstock doctor`: checks of settings, bucket, ledger, machine and stored files, each with its remedy."""
