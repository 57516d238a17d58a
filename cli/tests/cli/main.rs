//! The command, as its user sees it: what it prints, what it complains about, how it ends.

mod command;
mod info;
mod pingpong;
