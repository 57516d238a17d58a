//! The attribute that makes a function a test of the suite.

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Ident, ItemFn, Lit, Meta, Token, parse_macro_input};

/// Makes a function of a `Net` a test, and says over which networks it runs: `#[over(all)]`,
/// `#[over(one_process, automatic)]`. The words are the constants of `homespun_suite::Over`, in lower case.
/// The test shows the clauses that its documentation names: `/// Shows fi_cq/format-tagged.`
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
    let clauses = read_clauses(&function.attrs);
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
                clauses: &[#(#clauses),*],
                run: #name,
            }
        }
    }
    .into()
}

/// The clauses that the documentation of a test names.
fn read_clauses(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    // A page's name may have a dot, so a sentence ends where a line does.
    let text = text + "\n";
    let sentences = text.split("Shows ").skip(1).filter_map(|rest| rest.split_once(".\n"));
    let names = sentences.flat_map(|(sentence, _)| sentence.split(',').map(str::trim));
    names.filter(|name| name.contains('/') && !name.contains(' ')).map(str::to_owned).collect()
}
