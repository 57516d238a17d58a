//! The command, as its user sees it: what it prints, what it complains about, how it ends.

mod against;
mod bench;
mod command;
mod confined;
mod info;
mod pingpong;
mod run;
mod sleep;
