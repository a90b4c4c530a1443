"""How an evaluation is planned, cut into shards, and done."""
