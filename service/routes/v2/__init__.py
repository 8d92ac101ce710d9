"""`/v2`: the Open Inference Protocol, as `tritonclient[http]` speaks it."""
