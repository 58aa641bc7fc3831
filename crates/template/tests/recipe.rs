//! Recipes as text: what is accepted, what is refused and how, and that printing loses nothing.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use stasis_template::{Base, ImageSource, Recipe, RecipeLimits, Size};

fn refusal(text: &str) -> String {
    let error = Recipe::parse(text).unwrap_err();
    assert_eq!(error.code(), "template.recipe");
    error.to_string()
}

#[test]
fn the_default_recipe_is_one() {
    let recipe = Recipe::default_template();
    assert_eq!((recipe.name.as_str(), &recipe.base), ("python", &Base::Host));
    assert!(recipe.packages.iter().any(|package| package == "numpy"));
    // what the service's configuration says holds for its machines
    assert_eq!(recipe.limits, RecipeLimits::default());
    assert_eq!(recipe.language, "python");
}

#[test]
fn every_language_has_a_recipe() {
    for language in stasis_agent::LANGUAGES {
        let recipe = Recipe::built_in(language.name()).expect("a recipe of its name");
        assert_eq!(recipe.language, language.name());
    }
    assert!(Recipe::built_in("tiny").is_none());
}

#[test]
fn keys_that_a_language_does_not_have_are_refused() {
    let start = "name = \"x\"\nlanguage = \"javascript\"\n";
    for key in ["base = { debian = {} }", "python = \"3\"", "prepare = \"1\""] {
        let said = refusal(&format!("{start}{key}\n"));
        assert!(said.contains("line 3") && said.contains("javascript yet"), "{said}");
    }
    let packages = |list: &str| format!("{start}packages = [{list}]\n");
    assert!(Recipe::parse(&packages("\"left-pad@^1.3.0\", \"@types/node\"")).is_ok());
    for name in ["-g", "../x", "user/repository", "a b"] {
        let said = refusal(&packages(&format!("\"{name}\"")));
        assert!(said.contains("is not a package"), "{said}");
    }
}

#[test]
fn bases_are_written_as_the_default_recipe_shows_them() {
    let base = |text: &str| Recipe::parse(&format!("name = \"x\"\nbase = {text}\n")).unwrap().base;
    assert_eq!(base("\"host\""), Base::Host);
    assert_eq!(base("{ debian = {} }"), Base::Debian { suite: "trixie".to_owned() });
    let reference = ImageSource::Reference("docker.io/library/python:3.13-slim".to_owned());
    assert_eq!(
        base("{ oci = { reference = \"docker.io/library/python:3.13-slim\" } }"),
        Base::Oci(reference)
    );
    assert_eq!(
        base("{ oci = { layout = \"a/b\" } }"),
        Base::Oci(ImageSource::Layout("a/b".into()))
    );
    assert_eq!(
        base("{ oci = { archive = \"a.tar\" } }"),
        Base::Oci(ImageSource::Archive("a.tar".into()))
    );
}

#[test]
fn errors_name_the_key_and_the_line() {
    let start = "name = \"x\"\nbase = \"host\"\n";
    let unknown = refusal(&format!("{start}\npakages = []\n"));
    assert!(unknown.contains("line 4") && unknown.contains("pakages"), "{unknown}");
    let kind = refusal(&format!("{start}packages = 7\n"));
    assert!(kind.contains("line 3"), "{kind}");
    let limit = refusal(&format!("{start}[limits]\npids = 1\n"));
    assert!(limit.contains("line 4: limits.pids: at least 4"), "{limit}");
    let size = refusal(&format!("{start}[limits]\nmemory = \"much\"\n"));
    assert!(size.contains("line 4") && size.contains("512MiB"), "{size}");
    let language = refusal(&format!("{start}language = \"cobol\"\n"));
    assert!(language.contains("line 3: language: one of python"), "{language}");
    let name = refusal("name = \"../x\"\nbase = \"host\"\n");
    assert!(name.contains("line 1: name:"), "{name}");
    let missing = refusal("base = \"host\"\n");
    assert!(missing.contains("name"), "{missing}");
}

#[test]
fn a_package_cannot_be_an_option_of_the_installer() {
    for package in ["--index-url=http://x", "-r/etc/passwd", "", "a\nb", "../x"] {
        let text = format!("name = \"x\"\nbase = \"host\"\npackages = [{package:?}]\n");
        assert!(refusal(&text).contains("packages"), "{package}");
    }
    let apt = "name = \"x\"\nbase = { debian = {} }\napt = [\"a,b\"]\n";
    assert!(refusal(apt).contains("apt"));
    let elsewhere = "name = \"x\"\nbase = \"host\"\napt = [\"git\"]\n";
    assert!(refusal(elsewhere).contains("only the base `debian`"));
}

#[test]
fn paths_are_meant_from_where_the_recipe_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recipe.toml");
    let text = "name = \"x\"\nbase = { oci = { archive = \"a.tar\" } }\n";
    std::fs::write(&file, text).unwrap();
    let expected = Base::Oci(ImageSource::Archive(dir.path().join("a.tar")));
    assert_eq!(Recipe::read(&file).unwrap().base, expected);
}

#[test]
fn a_huge_recipe_is_refused() {
    assert!(refusal(&"#".repeat(1 << 20)).contains("longer than"));
}

fn base() -> impl Strategy<Value = Base> {
    prop_oneof![
        Just(Base::Host),
        "[a-z][a-z0-9-]{0,8}".prop_map(|suite| Base::Debian { suite }),
        "[a-z]{1,8}/[a-z]{1,8}:[a-z0-9]{1,5}"
            .prop_map(|text| Base::Oci(ImageSource::Reference(format!("localhost:5000/{text}")))),
        "[^\0]{1,20}".prop_map(|path| Base::Oci(ImageSource::Layout(path.into()))),
        "[^\0]{1,20}".prop_map(|path| Base::Oci(ImageSource::Archive(path.into()))),
    ]
}

prop_compose! {
    fn limits()(
        memory in option::of((64u64 << 20)..1 << 50),
        cpu in option::of(0.01f64..1024.0),
        pids in option::of(4u32..),
        disk in option::of(1u64..1 << 60),
    ) -> RecipeLimits {
        RecipeLimits { memory: memory.map(Size), cpu, pids, disk: disk.map(Size) }
    }
}

prop_compose! {
    fn recipes()(
        name in "[a-z0-9][a-z0-9-]{0,39}",
        texts in [".{0,60}", "(?s).{0,60}", "(?s).{0,60}"],
        interpreter in option::of("[0-9/a-z][0-9a-z./]{0,9}"),
        packages in vec("[a-zA-Z0-9][ -~]{0,20}", 0..4),
        source_builds: bool,
        base in base(),
        env in btree_map("[A-Za-z_][A-Za-z0-9_]{0,8}", "[^\0]{0,20}", 0..4),
        limits in limits(),
    ) -> Recipe {
        let [description, prepare, warm_up] = texts;
        let apt = if matches!(base, Base::Debian { .. }) { vec!["git".to_owned()] } else { vec![] };
        Recipe {
            name, description, interpreter, packages, apt, source_builds, prepare, warm_up, base,
            env, limits, language: "python".into(),
        }
    }
}

proptest! {
    #[test]
    fn printing_loses_nothing(recipe in recipes()) {
        let text = recipe.print();
        let shown = |error| TestCaseError::fail(format!("{error}\n{text}"));
        let again = Recipe::parse(&text).map_err(shown)?;
        prop_assert_eq!(&again, &recipe);
        prop_assert_eq!(again.digest(), recipe.digest());
    }

    #[test]
    fn any_text_is_a_recipe_or_an_error(text in "(?s).{0,200}") {
        let _ = Recipe::parse(&text);
    }

    #[test]
    fn sizes_come_back(bytes: u64) {
        prop_assert_eq!(Size::parse(&Size(bytes).to_string()), Some(Size(bytes)));
    }
}
