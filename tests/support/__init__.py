"""What tests share: services, clients, builders of commands and stored data. No module here is a test."""
