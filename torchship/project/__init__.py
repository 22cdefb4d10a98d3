"""Makes and updates a client's repository; what a client's wheel carries has none of it."""
