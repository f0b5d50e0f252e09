//! `cargo xtask check`

use std::process::{Command, ExitCode};

use crate::{conformance, cycles, layers, openssl, process, workspace};

/// Something that must hold of the source, and how to fix it.
struct Check {
    name: &'static str,
    fix: &'static str,
    holds: fn() -> bool,
}

const CHECKS: [Check; 6] = [
    Check {
        name: "formatting",
        fix: "cargo fmt --all",
        holds: || passes(workspace::cargo().args(["fmt", "--all", "--check"])),
    },
    Check {
        name: "lints",
        fix: "cargo clippy --workspace --all-targets --all-features --fix --allow-dirty, and the rest by hand",
        holds: || {
            let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
            passes(workspace::cargo().args(everything).args(["--", "-D", "warnings"]))
        },
    },
    Check {
        name: "documentation",
        fix: "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features, and fix what it names",
        holds: || {
            let mut doc = workspace::cargo();
            doc.args(["doc", "--workspace", "--no-deps", "--all-features"]);
            passes(doc.env("RUSTDOCFLAGS", "-D warnings"))
        },
    },
    Check {
        name: "conformance page",
        fix: conformance::FIX,
        holds: conformance::is_up_to_date,
    },
    Check {
        name: "layers",
        fix: layers::FIX,
        holds: layers::hold,
    },
    Check {
        name: "import circles",
        fix: cycles::FIX,
        holds: cycles::none,
    },
];

/// Runs all checks, so that one run shows all that is wrong.
pub(crate) fn run() -> ExitCode {
    openssl::provide();
    let failed: Vec<_> = CHECKS.iter().filter(|check| !(check.holds)()).collect();
    if failed.is_empty() {
        println!("\nAll {} checks passed.", CHECKS.len());
        return ExitCode::SUCCESS;
    }
    println!("\n{} of {} checks failed:", failed.len(), CHECKS.len());
    for Check { name, fix, .. } in failed {
        println!("  {name}; to fix: {fix}");
    }
    ExitCode::FAILURE
}

fn passes(command: &mut Command) -> bool {
    match process::run(command) {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}
