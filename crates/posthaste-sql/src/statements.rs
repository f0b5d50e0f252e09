//! The statements of a store, each in a file of its name, in groups by what a table has.

/// Declares `Statements`, and a struct for each group of them.
///
/// A group that not every table can serve says so after `if`, and is an `Option`: the caller of its statements says what
/// happens without. Where roles share a column, statements that write it take `each_column_once`.
///
/// ```ignore
/// posthaste_sql::statements! {
///     Statement in "../queries/";
///     /// What every table needs.
///     common: Common => { settle, stats }
///     /// For tables with leases.
///     leases: Leases if |map| map.has(Role::LeaseToken) => { extend }
///     /// For tables whose own indexes say what may be there once.
///     plain: Plain if |map| !map.has(Table::Dedupe), each_column_once => { insert }
/// }
/// ```
///
/// `Statements::render` takes the table map and what finishes a statement, given the text of its file; a
/// statement has its finished `text()`.
#[macro_export]
macro_rules! statements {
    ($statement:ident in $folder:literal; $(
        $(#[$about:meta])*
        $field:ident: $group:ident $(if $need:expr)? $(, $once:ident)? => { $($name:ident),* $(,)? }
    )*) => {
        /// Every statement that a table needs, and none that it has no columns for.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $($(#[$about])* pub(crate) $field: $crate::statements!(@field $group $(, $need)?),)*
        }

        impl Statements {
            pub(crate) fn render(
                map: &$crate::TableMap,
                finish: impl Fn(&str, &$crate::TableMap) -> Result<$statement, $crate::template::TemplateError>,
            ) -> Result<Self, $crate::template::TemplateError> {
                Ok(Self {
                    $($field: {
                        let render = || $group::render(&$crate::statements!(@map map $(, $once)?), &finish);
                        $crate::statements!(@render map, render $(, $need)?)
                    },)*
                })
            }

            /// Each statement by its name.
            pub(crate) fn all(&self) -> Vec<(&'static str, &$statement)> {
                let mut all = Vec::new();
                $($crate::statements!(@all self.$field, all $(, $need)?);)*
                all
            }

            /// For readers and for snapshots.
            pub(crate) fn texts(&self) -> Vec<(&'static str, String)> {
                let all = self.all().into_iter();
                all.map(|(name, statement)| (name, statement.text().to_string())).collect()
            }
        }

        $(
            $(#[$about])*
            #[derive(Debug)]
            #[allow(clippy::struct_field_names, reason = "a field is named as its file")]
            pub(crate) struct $group {
                $(pub(crate) $name: $statement,)*
            }

            impl $group {
                fn render(
                    map: &$crate::TableMap,
                    finish: impl Fn(&str, &$crate::TableMap) -> Result<$statement, $crate::template::TemplateError>,
                ) -> Result<Self, $crate::template::TemplateError> {
                    Ok(Self {
                        $($name: finish(include_str!(concat!($folder, stringify!($name), ".sql")), map)?,)*
                    })
                }

                pub(crate) fn all(&self) -> Vec<(&'static str, &$statement)> {
                    vec![$((stringify!($name), &self.$name),)*]
                }
            }
        )*
    };

    (@field $group:ident) => { $group };
    (@field $group:ident, $need:expr) => { Option<$group> };

    (@map $map:ident) => { $map };
    (@map $map:ident, each_column_once) => { $map.with_each_column_once() };

    (@render $map:ident, $render:ident) => { $render()? };
    (@render $map:ident, $render:ident, $need:expr) => {{
        let need: fn(&$crate::TableMap) -> bool = $need;
        need($map).then($render).transpose()?
    }};

    (@all $group:expr, $all:ident) => { $all.extend($group.all()) };
    (@all $group:expr, $all:ident, $need:expr) => { $all.extend($group.iter().flat_map(|group| group.all())) };
}
