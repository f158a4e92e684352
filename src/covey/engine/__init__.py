"""One verb, one transaction: what a queue can be asked, over the Store."""
