"""The edge: limits on what arrives, keys, request log, problem documents."""
