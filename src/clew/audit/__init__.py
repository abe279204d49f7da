"""The auditor's room: is the record complete, is it unaltered, and what does it say."""
