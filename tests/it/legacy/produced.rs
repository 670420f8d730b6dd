//! Every documented error is produced by a test of this API.
//!
//! A code counts where a test has it as a value of its own, to be compared with what came: not in a comment, not in the
//! body of a request, not where it is said not to come. That it came with a status it may have is looked at
//! wherever a test reads an answer ([`assert_documented`](crate::support::contract::assert_documented)).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use muster::protocol::legacy::Code;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, ExprBinary, LitStr, Macro, Token};

/// No test produces these, each for a reason.
const NOT_PRODUCED: [(&str, &str); 10] = [
    (
        "AestheticsConfused",
        "a best image that others outdo is left aside",
    ),
    ("AestheticsServerDown", "ratings go to no other service"),
    ("AestheticsServerError", "ratings go to no other service"),
    ("AestheticsServerRejected", "ratings go to no other service"),
    ("AestheticsServerTimeout", "ratings go to no other service"),
    (
        "BadCFGNumber",
        "what is no number is refused with its place",
    ),
    ("BetaAnonForbidden", "there is no such model"),
    ("BetaComparisonFault", "there is no such model"),
    (
        "InvalidAestheticAttempt",
        "the house that pays for ratings is never short",
    ),
    ("TooManyNewIPs", "addresses are not asked about elsewhere"),
];

/// The values of their own in a file: texts as a client reads them, and codes by their names.
#[derive(Default)]
struct Values {
    texts: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Values {
    fn of(text: &str) -> Self {
        let mut values = Self::default();
        values.visit_file(&syn::parse_file(text).unwrap());
        values
    }

    fn expect(&self, code: Code) -> bool {
        self.texts.contains(code.row().rc) || self.names.contains(&format!("{code:?}"))
    }
}

impl<'ast> Visit<'ast> for Values {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        self.texts.insert(literal.value());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut last = path.segments.iter().rev();
        if let (Some(name), Some(of)) = (last.next(), last.next())
            && of.ident == "Code"
        {
            self.names.insert(name.ident.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if !matches!(binary.op, BinOp::Ne(_)) {
            visit::visit_expr_binary(self, binary);
        }
    }

    /// Only macros with expressions: a body has another syntax, unless it is a single value.
    fn visit_macro(&mut self, called: &'ast Macro) {
        let expressions = called.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        if called.path.is_ident("assert_ne") {
            return;
        }
        for expression in expressions.into_iter().flatten() {
            // Expressions parsed here have a shorter lifetime than the file.
            let mut inside = Values::default();
            inside.visit_expr(&expression);
            self.texts.append(&mut inside.texts);
            self.names.append(&mut inside.names);
        }
    }
}

#[test]
fn a_code_counts_where_it_is_compared_with_what_came() {
    let values = Values::of(
        r#"
        /// "InComment"
        fn test() {
            // "InAnother"
            call(json!({"rc": "InBody", "more": ["InList"]}));
            assert_ne!(rc, "NotThis");
            assert!(rc != "NorThis");
            check(answer, 400, "AsArgument");
            assert_eq!((status, &answer["rc"]), (400, &json!("InAssertion")), "{answer}");
            for (body, rc) in [(json!({"a": 1}), "InTable")] {}
            refused(Code::ByName);
        }
        "#,
    );
    for counts in ["AsArgument", "InAssertion", "InTable"] {
        assert!(values.texts.contains(counts), "{counts}");
    }
    for not in [
        "InComment",
        "InAnother",
        "InBody",
        "InList",
        "NotThis",
        "NorThis",
    ] {
        assert!(!values.texts.contains(not), "{not}");
    }
    assert_eq!(values.names, BTreeSet::from(["ByName".to_owned()]));
}

#[test]
fn every_documented_error_is_produced_by_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/legacy");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let tests = files.filter(|path| !path.ends_with(Path::new(file!()).file_name().unwrap()));
    let values: Vec<Values> = tests
        .map(|path| Values::of(&fs::read_to_string(path).unwrap()))
        .collect();
    let codes = Code::ALL.iter();
    let missing = codes.filter(|code| !values.iter().any(|values| values.expect(**code)));
    let missing: BTreeSet<&str> = missing.map(|code| code.row().rc).collect();
    let expected: BTreeSet<&str> = NOT_PRODUCED.iter().map(|(rc, _)| *rc).collect();
    assert_eq!(missing, expected, "codes that no test produces");
}
