"""The processes that run user code, and what they leave behind."""
