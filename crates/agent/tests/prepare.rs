//! The JavaScript that TypeScript becomes. Tests of machines run the results.

use stasis_agent::typescript::prepare;
use stasis_protocol::PreparedCode;

fn code(source: &str) -> String {
    match prepare(source) {
        Some(PreparedCode::Code { code, .. }) => code,
        other => panic!("{source:?} became {other:?}"),
    }
}

#[test]
fn types_leave_spaces() {
    for (source, wanted) in [
        ("let x: number = 1", "let x         = 1"),
        ("let x!: string", "let x         "),
        ("f<string>()", "f        ()"),
        ("(x as any).y!.z", "(x       ).y .z"),
        ("let a = b satisfies C;", "let a = b            ;"),
        (
            "function f<T>(this: X, a?: T, ...b: T[]): a is T {}",
            "function f   (         a    , ...b     )         {}",
        ),
        (
            "const f = async <T,>(a: T): Promise<T> => a",
            "const f = async     (a   )             => a",
        ),
        ("try {} catch (e: unknown) {}", "try {} catch (e         ) {}"),
        ("let é: 'ü' = 1", "let é      = 1"),
        ("a = <T>b", "a =    b"),
        ("a = () => <T>{ b: 1 }", "a = () => (  { b: 1 })"),
        ("type A = {\n  b: 1 }\n5", ";         \n        \n5"),
        ("interface A { b: 1 }; 5", ";                   ; 5"),
        ("declare const a: 1; 5", ";                   5"),
        (
            "function f(a: 1): 1\nfunction f(a) { return a }",
            ";                  \nfunction f(a) { return a }",
        ),
        ("import type { A } from 'a'", ";                         "),
        ("a as T\n(1)", "a ;   \n(1)"),
        ("let f = (a): {\n} => a", "let f = (a    \n) => a"),
        ("let f = <\nT>(a) => a", "let f = (\n   a) => a"),
        ("export type A = 1; export interface B {}", ";                  ;                    "),
        ("import fs = require('fs')", "const  fs = require('fs')"),
    ] {
        assert_eq!(code(source), wanted, "{source}");
    }
}

#[test]
fn classes_lose_their_types() {
    for (source, wanted) in [
        (
            "abstract class A<T> extends B<T> implements C, D { }",
            "         class A    extends B                    { }",
        ),
        (
            "class A { private readonly x: 1 = 1; declare y: 2; [k: string]: 3; z?: 4 }",
            "class A { ;                x    = 1; ;             ;               z     }",
        ),
        (
            "class A { static readonly x; abstract f(): void; f(a): 1; f(a) {} }",
            "class A { static          x; ;                   ;        f(a) {} }",
        ),
        (
            "class A { constructor(public a: 1, b = 2) { f() } }",
            "class A { constructor(       a   , b = 2) { this.a = a; f() } }",
        ),
        (
            "class A extends B { constructor(private a) { super(a); f() } }",
            "class A extends B { constructor(        a) { super(a);; this.a = a; f() } }",
        ),
    ] {
        assert_eq!(code(source), wanted, "{source}");
    }
}

#[test]
fn enums_and_namespaces_become_values() {
    assert_eq!(
        code("enum E {\n  A,\n  B = A | 4, // four\n  'c-d' = 'x',\n}"),
        "var E = ((E) => {\n  const A = E[\"A\"] = 0; E[E[\"A\"]] = \"A\"; \n  \
         const B = E[\"B\"] = (A \
         | 4); if (typeof E[\"B\"] === \"number\") E[E[\"B\"]] = \"B\";  // four\n  E[\"c-d\"] = \
         ('x'); \n return E; })({});"
    );
    assert_eq!(
        code("namespace N { export const a = 1; export function f() {} type T = 1 }"),
        "var N = ((N) => { N.f = f;        const a = 1;; \
         N.a = a;        function f() {} ;           \
         return N; })({});"
    );
    assert_eq!(
        code("namespace N { export type A = 1 }\n1"),
        ";                                \n1"
    );
    assert!(code("class A {} namespace A { export const b = 1 }").ends_with(" })(A);"));
    assert!(code("namespace A.B { export const c = 1 }").contains("A.B = ((B) => {"));
}

#[test]
fn imports_become_constants() {
    for (source, wanted) in [
        ("import 'a'", "void await import(\"a\");"),
        ("import * as b from 'a'; b", "const b = await import(\"a\"); b"),
        (
            "import b, { c as d, type E } from 'a'",
            "const { default: b, \"c\": d } = __stasis__.named(await import(\"a\"), \"a\", \
             [\"default\", \"c\"]);",
        ),
        (
            "import {\n  b\n} from 'a'\nb",
            "const { \"b\": b } = __stasis__.named(await import(\"a\"), \"a\", \
             [\"b\"]);\n\n          \nb",
        ),
        (
            "import j from './j.json' with { type: 'json' }",
            "const { default: j } = __stasis__.named(await import(\"./j.json\", { with: \
             { \"type\": \
             \"json\" } }), \"./j.json\", [\"default\"]);",
        ),
        ("export const a = 1", "       const a = 1"),
        ("export default class A {}", "               class A {}"),
        ("export default { a: 1 }", ";({ a: 1 })"),
        ("export { a }", ";           "),
    ] {
        assert_eq!(code(source), wanted, "{source}");
    }
}

/// Text that V8 refused and that is JavaScript all the same has nothing to be made of it.
#[test]
fn plain_code_stays() {
    for source in ["a < b > (c)", "await 1", "let x = { a: 1 }", "await import('a')", "", "// x"] {
        assert_eq!(prepare(source), None, "{source}");
    }
}

#[test]
fn errors_have_a_place() {
    let Some(PreparedCode::Refused { line, column, message }) =
        prepare("let é: T = 1\nlet é = = 2")
    else {
        panic!("it is wrong");
    };
    assert_eq!((line, column), (2, 9), "{message}");
    let refused = prepare("{ import 'a' }");
    assert!(
        matches!(refused, Some(PreparedCode::Refused { line: 1, column: 3, .. })),
        "{refused:?}"
    );
    let refused = prepare("1\nexport = a");
    assert!(
        matches!(refused, Some(PreparedCode::Refused { line: 2, column: 1, .. })),
        "{refused:?}"
    );
}

/// Incomplete or hostile texts.
#[test]
fn any_text_has_an_answer() {
    let whole = "abstract class A<T> extends B<T> implements C { private x?: T = <T>{}; \
                 constructor(readonly y: 1) { super() } static f(): void; }\nenum E { é, B = é }\n\
                 namespace N.M { export let a = 1 }\n\
                 import d, { e as f } from 'g' with { t: 'u' }\n\
                 export default <T,>(a: T): T => a as T satisfies T\n`${a!}` /* é */ //";
    for at in (0..=whole.len()).filter(|at| whole.is_char_boundary(*at)) {
        let (before, after) = whole.split_at(at);
        for text in [before.to_owned(), after.to_owned(), format!("{before}({after}")] {
            if let Some(PreparedCode::Code { code, .. }) = prepare(&text) {
                let lines = |text: &str| text.matches('\n').count();
                assert_eq!(lines(&code), lines(&text), "{text:?}");
            }
        }
    }
}
