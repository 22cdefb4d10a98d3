"""What `torchship port` knows, written from torch itself, and its reports on public extensions."""
