//! npm in templates and machines. npm's registry is used, as for fetching Node.

use stasis_api::NewMachine;
use stasis_template::{NoProgress, Recipe};
use stasis_testbed::{TestHost, lines, run, value};

fn recipe(package: &str) -> Recipe {
    let text = "name = \"padded\"\nlanguage = \"javascript\"\npackages = [PACKAGE]\n";
    Recipe::parse(&text.replace("PACKAGE", &format!("{package:?}"))).expect("a recipe")
}

#[test]
fn packages_of_a_recipe_are_there() {
    let bed = TestHost::of("javascript");
    bed.host.build_template(&recipe("left-pad@1.3.0"), &NoProgress).expect("built");
    let new = NewMachine { template: Some("padded".into()), ..NewMachine::default() };
    let machine = bed.host.create("test", new).expect("a machine");
    assert_eq!(value(&machine, "import pad from 'left-pad'; pad('7', 3, '0')"), "'007'");
    assert_eq!(value(&machine, "require('left-pad')('x', 2)"), "' x'");
    // npm itself works, also where there is no network
    let end =
        run(&machine, &machine.language().shell("npm ls --parseable --long && npx --version"));
    let said = lines(&machine, end.seq, None);
    assert!(said.iter().any(|line| line.contains("left-pad@1.3.0")), "{said:?}");
    assert_eq!(end.outcome.expect("an outcome").value.as_deref(), Some("0"), "{said:?}");
    let missing = recipe("left-pad@99.0.0");
    let error = bed.host.build_template(&missing, &NoProgress).expect_err("no such version");
    assert!(error.to_string().contains("npm"), "{error}");
}
