"""What users test their own code with: Hermes in memory, without a store."""
