//! The library as C programs see it: its symbols, its headers, and programs that run over it.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod compiler;
mod exports;
mod headers;
mod programs;
mod symbols;
mod versions;
