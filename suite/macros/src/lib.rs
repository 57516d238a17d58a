//! The attribute that makes a function a test of the suite.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Ident, ItemFn, Token, parse_macro_input};

/// Makes a function of a `Net` a test, and says over which networks it runs: `#[over(all)]`,
/// `#[over(one_process, automatic)]`. The words are the constants of `homespun_suite::Over`, in lower case.
#[proc_macro_attribute]
pub fn over(words: TokenStream, function: TokenStream) -> TokenStream {
    let words = match Punctuated::<Ident, Token![,]>::parse_terminated.parse(words) {
        Ok(words) => words,
        Err(error) => return error.into_compile_error().into(),
    };
    let constants = words.iter().map(|word| Ident::new(&word.to_string().to_uppercase(), word.span()));
    let over = quote!(::homespun_suite::Over::empty()#(.union(::homespun_suite::Over::#constants))*);
    let function = parse_macro_input!(function as ItemFn);
    let name = &function.sig.ident;
    quote! {
        #function

        const _: () = ::core::assert!(
            ::homespun_suite::Over::ALL.intersects(#over),
            "a test says what drives its parties",
        );
        ::homespun_suite::inventory::submit! {
            ::homespun_suite::Test {
                module: ::core::module_path!(),
                name: ::core::stringify!(#name),
                over: #over,
                run: #name,
            }
        }
    }
    .into()
}
