//! TypeScript and `import` on JavaScript machines.

use crate::javascript::{bed, machine, traceback};
use stasis_api::Status;
use stasis_machine::Machine;
use stasis_testbed::{error_name, lines, run, value};
use std::sync::Arc;

/// Instructions in order, and what they show.
fn transcript(machine: &Arc<Machine>, steps: &[(&str, &str)]) {
    for (code, shown) in steps {
        let end = run(machine, code);
        assert_eq!(end.status, Status::Done, "{code}: {:?}", end.outcome);
        let value = end.outcome.expect("an outcome").value.unwrap_or_default();
        assert_eq!(value, *shown, "{code}");
    }
}

#[test]
fn types_run_as_written() {
    let bed = bed();
    transcript(
        &machine(&bed),
        &[
            ("interface User { name: string; age?: number }", ""),
            ("const ann: User = { name: 'Ann' }; ann.name", "'Ann'"),
            ("function first<T>(list: readonly T[], or?: T): T { return list[0] ?? or! }", ""),
            ("first<number>([7]) satisfies number", "7"),
            (
                "const twice = async <T,>(x: T): Promise<[T, T]> => [x, x]; await twice('a')",
                "[ 'a', 'a' ]",
            ),
            ("{ a: 1 as number }", "{ a: 1 }"),
            (
                "let words: Map<string, number> = new Map<string, number>([['a', 1]]); words",
                "Map(1) { 'a' => 1 }",
            ),
            ("type Shape = { kind: 'a' } | { kind: 'b' }; 'after' as string", "'after'"),
            ("let total: number = 0; for (const n of [1, 2] as const) total += n; total", "3"),
            ("let total: number = 10; total", "10"),
            ("declare const nothing: string; typeof nothing", "'undefined'"),
            ("abstract class A { abstract f(): number; g(): number { return this.f() } }", ""),
            (
                "class B extends A { constructor(private readonly n: number, public m = 2) \
                 { super() } f() { return this.n * this.m } }",
                "",
            ),
            ("new B(21).g()", "42"),
            ("new B(1) as unknown", "B { n: 1, m: 2 }"),
        ],
    );
}

#[test]
fn enums_and_namespaces_are_values() {
    let bed = bed();
    transcript(
        &machine(&bed),
        &[
            ("enum Color { Red, Green = 5, Blue, Text = 'x', Mix = Green | 2 }", ""),
            ("[Color.Red, Color[6], Color.Text, Color.Mix]", "[ 0, 'Blue', 'x', 7 ]"),
            ("Object.keys(Color).length", "9"),
            ("enum Color { Red = 'again' }; Color", "{ Red: 'again' }"),
            ("const enum Bit { One = 1 << 0, Two = Bit.One << 1 }; Bit.Two", "2"),
            ("function f() { enum Inner { A = 3 }; return Inner.A }; f() as number", "3"),
            (
                "namespace Geo { export const pi = 3; export let count = 0; \
                 export function area(r: number) { count++; return pi * r * r } \
                 export namespace Deep.er { export enum E { A = 9 } } interface Hidden {} }",
                "",
            ),
            ("[Geo.area(2), Geo.count, Geo.pi, Geo.Deep.er.E.A]", "[ 12, 1, 3, 9 ]"),
            (
                "class Box { x = 1 as number }; namespace Box { export const size = 4 }; Box.size",
                "4",
            ),
        ],
    );
}

#[test]
fn places_are_those_of_the_text() {
    let bed = bed();
    let machine = machine(&bed);
    let end = run(&machine, "let a: number = 1\nenum E { A } throw new RangeError('no' as string)");
    assert_eq!(
        traceback(&end),
        "instruction 0:2\nenum E { A } throw new RangeError('no' as string)\n                   \
         ^\nRangeError: no\n    at instruction 0:2:20\n"
    );
    // of an instruction before, too
    run(&machine, "enum F { A } function fail(n: number) { throw new Error('late') }");
    let end = run(&machine, "fail(1)");
    assert!(traceback(&end).contains("at fail (instruction 1:1:47)"), "{}", traceback(&end));
    // what is wrong with TypeScript, and not that V8 knows no types
    let end = run(&machine, "let b: number = 1\nlet c: = 3");
    assert_eq!((end.status, error_name(&end)), (Status::Failed, "SyntaxError"));
    assert!(traceback(&end).contains("at instruction 3:2:8\n"), "{}", traceback(&end));
    // a name that is declared twice is V8's to find
    let end = run(&machine, "let d: number = 1; let d = 2");
    assert!(traceback(&end).contains("at instruction 4:1:24\n"), "{}", traceback(&end));
    // an error that a program makes itself is no reason to run it again
    let code = "globalThis.runs = (globalThis.runs ?? 0) + 1; throw new SyntaxError('mine')";
    assert_eq!(error_name(&run(&machine, code)), "SyntaxError");
    assert_eq!(value(&machine, "runs"), "1");
}

/// Text that would overflow the parser's stack, take exponential time, or all memory.
#[test]
fn text_that_is_hard_to_parse_costs_one_instruction() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let kept = 1");
    let deep = |open: &str, count: usize| format!("let x: number = {}", open.repeat(count));
    let guesses = format!("let x: 1 = {}1{}", "f<{[".repeat(60), "]:a}>b".repeat(60));
    let long = format!("let x: number = 1; {}", "/* long */".repeat(1 << 20));
    for code in [deep("(", 100_000), deep("[", 100_000), deep("a=>", 100_000), guesses, long] {
        let end = run(&machine, &code);
        assert_eq!(end.status, Status::Failed, "{}", &code[..40]);
        assert_eq!(value(&machine, "kept"), "1", "{}", &code[..40]);
    }
}

#[test]
fn modules_are_imported() {
    let bed = bed();
    let machine = machine(&bed);
    let files = "const fs = require('node:fs'); \
                 fs.mkdirSync('node_modules/pack', { recursive: true }); \
                 fs.writeFileSync('node_modules/pack/package.json', '{ \"main\": \"m.js\" }'); \
                 fs.writeFileSync('node_modules/pack/m.js', 'exports.one = 1'); \
                 fs.writeFileSync('own.mjs', 'console.log(\"loaded\"); \
                 export let n = 1; export const add = () => ++n; export default \"d\"'); \
                 fs.writeFileSync('data.json', '{ \"a\": [1] }'); \
                 fs.writeFileSync('typed.ts', 'import type { X } from \"./no.ts\"; \
                 export const half = (n: number): number => n / 2')";
    run(&machine, files);
    transcript(
        &machine,
        &[
            ("import path, { extname as ext } from 'node:path'", ""),
            ("path.basename('/a/b') + ext('c.d')", "'b.d'"),
            ("import * as os from 'node:os'; typeof os.cpus", "'function'"),
            ("import\n  d,\n  { add }\n  from './own.mjs'; [d, add()]", "[ 'd', 2 ]"),
            ("import { n } from './own.mjs'; n", "2"),
            ("(await import('./own.mjs')).add()", "3"),
            ("import { one } from 'pack'; one + require('pack').one", "2"),
            ("import data from './data.json' with { type: 'json' }; data.a", "[ 1 ]"),
            ("require('./data.json').a", "[ 1 ]"),
            ("import { half } from './typed.ts'; half(8)", "4"),
            (
                "const load = (name: string) => import(name); (await load('node:url')).URL === URL",
                "true",
            ),
            ("await new Function('return import(\"./own.mjs\")')().then((own) => own.n)", "3"),
            ("export const shown = 5; shown", "5"),
        ],
    );
    assert_eq!(lines(&machine, 4, None), ["loaded"]);
    // bindings and modules live on
    bed.host.swap(&machine).expect("swap out");
    assert_eq!(value(&machine, "[path.basename('x/y'), add(), half(4)]"), "[ 'y', 4, 2 ]");
    for (code, said) in [
        ("import { nope } from 'node:path'", "does not provide an export named 'nope'"),
        ("import x from './nowhere.mjs'", "Cannot find module"),
        ("import x from 'nowhere'", "Cannot find package 'nowhere'"),
        ("if (true) { import x from 'node:fs' }", "use import() or require()"),
    ] {
        let end = run(&machine, code);
        assert_eq!(end.status, Status::Failed, "{code}");
        assert!(traceback(&end).contains(said), "{code}: {}", traceback(&end));
    }
    let endless = "fs.writeFileSync('endless.mjs', 'while (true) {}'); import './endless.mjs'";
    let timeout = stasis_api::Timeout::Seconds(2.0);
    let exec = stasis_api::Exec { code: endless.into(), timeout, ..stasis_api::Exec::default() };
    assert_eq!(stasis_testbed::exec(&machine, exec).status, Status::Interrupted);
    assert_eq!(value(&machine, "add()"), "5");
}
