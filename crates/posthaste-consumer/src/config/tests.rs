//! The defaults are those of the documentation, and each can be overridden.
