//! `cargo xtask package`

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::{process, workspace};

/// Pack every crate that users get, and build an application and the command from the packages alone
///
/// The packages are those that a registry would get. They are unpacked in target/xtask/package, where a small application that
/// uses `posthaste` with its features, and the command, are built on them: what a package lacks, or takes from
/// elsewhere in this repository, does not compile. The application then enqueues and delivers. Nothing is published, and
/// nothing is fetched but what Cargo.lock names.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// The application. It is compiled there and nowhere else.
const APPLICATION: &str = include_str!("package/application.rs");
const APPLICATION_MANIFEST: &str = include_str!("package/application.toml");

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Empty where nothing may be published.
    publish: Option<Vec<String>>,
}

impl Package {
    fn directory(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

pub(crate) fn run(_: &Arguments) -> anyhow::Result<ExitCode> {
    let packages = published()?;
    let scratch = workspace::scratch("package");
    process::demand(workspace::cargo().args(["fetch", "--locked"]))?;
    let mut pack = workspace::cargo();
    pack.env("CARGO_TARGET_DIR", scratch.join("target"));
    // Verified below, all together: one by one each of them would build its dependencies again.
    pack.args(["package", "--offline", "--allow-dirty", "--no-verify"]);
    for package in &packages {
        pack.args(["-p", &package.name]);
    }
    process::demand(&mut pack)?;

    unpack(&packages, &scratch)?;
    write_application(&packages, &scratch)?;
    let mut build = workspace::cargo();
    build.current_dir(&scratch).args(["build", "--offline"]);
    build.args(["-p", "application", "-p", "posthaste-cli"]);
    // What both workspaces have in common is not built twice. The programs are kept apart: ours have the same names.
    let shared = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from);
    build.env("CARGO_BUILD_BUILD_DIR", shared);
    build.env("CARGO_TARGET_DIR", scratch.join("target"));
    process::demand(&mut build)?;
    let programs = scratch.join("target/debug");
    process::demand(&mut Command::new(programs.join("application")))?;
    process::demand(Command::new(programs.join("posthaste")).arg("--version"))?;
    println!("\nAll {} packages are complete.", packages.len());
    Ok(ExitCode::SUCCESS)
}

fn published() -> anyhow::Result<Vec<Package>> {
    let mut metadata = workspace::cargo();
    metadata
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit());
    let told = metadata.output().context("cannot run cargo")?;
    ensure!(told.status.success(), "cargo metadata failed");
    let metadata: Metadata = serde_json::from_slice(&told.stdout)?;
    let is_published = |package: &Package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    Ok(metadata.packages.into_iter().filter(is_published).collect())
}

/// From `target/package` to `crates`.
fn unpack(packages: &[Package], scratch: &Path) -> anyhow::Result<()> {
    let crates = scratch.join("crates");
    if crates.exists() {
        fs::remove_dir_all(&crates)?;
    }
    fs::create_dir_all(&crates)?;
    for package in packages {
        let archive = scratch.join(format!("target/package/{}.crate", package.directory()));
        // With the present time: those in an archive never change, and cargo would take other contents for the old ones.
        let mut tar = Command::new("tar");
        process::demand(tar.arg("-xzmf").arg(&archive).arg("-C").arg(&crates))?;
    }
    Ok(())
}

/// A workspace in which every crate of ours is one of the packages.
fn write_application(packages: &[Package], scratch: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(scratch.join("application/src"))?;
    fs::write(scratch.join("application/Cargo.toml"), APPLICATION_MANIFEST)?;
    fs::write(scratch.join("application/src/main.rs"), APPLICATION)?;
    fs::write(scratch.join("Cargo.toml"), manifest(packages)?)?;
    fs::copy(workspace::root().join("Cargo.lock"), scratch.join("Cargo.lock"))?;
    Ok(())
}

fn manifest(packages: &[Package]) -> anyhow::Result<String> {
    let ours: toml::Table = fs::read_to_string(workspace::root().join("Cargo.toml"))?.parse()?;
    let patches = packages.iter().map(|package| {
        let path = toml::Table::from_iter([("path".to_owned(), format!("crates/{}", package.directory()).into())]);
        (package.name.clone(), toml::Value::Table(path))
    });
    let mut manifest: toml::Table = "workspace = { resolver = '3', members = ['application', 'crates/*'] }".parse()?;
    manifest.insert("profile".into(), ours["profile"].clone());
    let registry = ("crates-io".to_owned(), patches.collect::<toml::Table>().into());
    manifest.insert("patch".into(), toml::Table::from_iter([registry]).into());
    Ok(toml::to_string(&manifest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_builds_or_measures_is_not_published() {
        let packages = published().unwrap();
        let names: Vec<_> = packages.iter().map(|package| package.name.as_str()).collect();
        assert!(
            names.contains(&"posthaste") && names.contains(&"posthaste-testkit"),
            "{names:?}"
        );
        for name in ["xtask", "posthaste-servers", "posthaste-bench", "commerce"] {
            assert!(!names.contains(&name), "{names:?}");
        }
    }

    #[test]
    fn each_of_our_crates_is_replaced_by_its_package() {
        let packages = [Package {
            name: "posthaste-core".into(),
            version: "9.9.9".into(),
            publish: None,
        }];
        let manifest: toml::Table = manifest(&packages).unwrap().parse().unwrap();
        let path = &manifest["patch"]["crates-io"]["posthaste-core"]["path"];
        assert_eq!(path.as_str(), Some("crates/posthaste-core-9.9.9"));
        assert!(manifest["profile"].get("dev").is_some(), "{manifest}");
    }
}
