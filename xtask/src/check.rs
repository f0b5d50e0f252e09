//! `cargo xtask check`

use std::process::{Command, ExitCode};

use crate::{conformance, cycles, layers, openssl, process, workspace};

/// Something that must hold of the source, and how to fix it.
struct Check {
    name: &'static str,
    fix: &'static str,
    holds: fn() -> bool,
}

const CHECKS: [Check; 8] = [
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
        name: "single features",
        fix: "cargo clippy -p posthaste-publishers --no-default-features --features FEATURE, and fix what it names",
        // Features that others use are built with them; a publisher alone is what a small application has.
        holds: || {
            ["", "callback", "stdout"].iter().all(|features| {
                let alone = [
                    "clippy",
                    "-p",
                    "posthaste-publishers",
                    "--no-default-features",
                    "--features",
                ];
                passes(workspace::cargo().args(alone).args([features, "--", "-D", "warnings"]))
            })
        },
    },
    Check {
        name: "no OpenTelemetry unless asked for",
        fix: "make the dependency that the tree shows optional, by the feature otel",
        holds: has_no_opentelemetry,
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

/// Whether an application that takes all of `posthaste` but its traces depends on nothing of OpenTelemetry.
fn has_no_opentelemetry() -> bool {
    let features = "consumer,derive,http,kafka,mysql,postgres,publishers,relay,sqlite,testing,tokio-postgres";
    let mut tree = workspace::cargo();
    tree.args([
        "tree",
        "--package",
        "posthaste",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    tree.args(["--no-default-features", "--features", features]);
    let Ok(output) = tree.output() else { return false };
    let tree = String::from_utf8_lossy(&output.stdout);
    let found: Vec<&str> = tree.lines().filter(|line| line.starts_with("opentelemetry")).collect();
    for line in &found {
        println!("{line}");
    }
    output.status.success() && found.is_empty()
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
