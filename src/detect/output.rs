//! What detection leaves behind: drawn pictures and text files.
