use super::*;
use crate::table::Kind;

/// Says what it was asked, so that a test can see it.
struct Echo;

impl Dialect for Echo {
    fn quote(&self) -> char {
        '"'
    }

    fn literal(&self, text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn read(&self, column: &str, kind: Kind, form: Form, _: &str) -> String {
        format!("{form:?}({column} {})", kind.as_str())
    }

    fn missing(&self, _: Form) -> &'static str {
        "null"
    }

    fn keep_time(&self, moment: &str, kind: Kind, _: &str) -> String {
        format!("keep({moment} {})", kind.as_str())
    }

    fn part(&self, name: &str) -> Option<&'static str> {
        (name == "mine").then_some("\"@tenant\" = 1\n")
    }

    fn type_name(&self, kind: Kind) -> &'static str {
        kind.as_str()
    }
}

fn finish(sql: &str, map: &TableMap) -> String {
    render(sql, map, &Echo).unwrap()
}

fn native() -> TableMap {
    TableMap::with_prefix("p_").unwrap()
}

#[test]
fn names_and_labels_are_put_in_quoted() {
    let map = TableMap::in_schema(r#"we"ird"#).unwrap();
    let sql =
        r#"select "@topic", o."@id", "@o.seq" from "@outbox" o where "@status" = '@pending' or '@schema' = "@schema""#;
    assert_eq!(
        finish(sql, &map),
        r#"select "topic", o."id", o."seq" from "we""ird"."outbox" o where "status" = 'pending' or 'we"ird' = "we""ird""#
    );
}

#[test]
fn optional_parts_follow_what_a_table_has_at_any_depth() {
    let sql = r"a/*if tenant*/ 1 /*if split_index*/ 2 /*else*/ 3 /*end*/ /*else*/ 4 /*end*/b/*if dedupe and version*/ x /*end*/";
    assert_eq!(finish(sql, &native()), "a1 2b");
    assert_eq!(finish(sql, &native().without_split_index()), "a1 3b");
    assert_eq!(finish(sql, &native().without(Role::Tenant)), "a4b");
    assert_eq!(
        finish("/*if version or topic*/yes/*end*/ /* a comment */", &native()),
        "yes /* a comment */"
    );
}

#[test]
fn columns_are_read_in_a_form_however_they_are_kept() {
    assert_eq!(
        finish(r#""@o.payload:bytes", "@version:int""#, &native()),
        r#"Bytes(o."payload" bytes), null"#
    );
    assert_eq!(
        finish(
            "/*as created_at*/ now() /*end*/ $1::/*type id*/uuid/*end*/[]",
            &native()
        ),
        "keep(now() timestamptz) $1::uuid[]"
    );
    assert_eq!(
        finish(r#""@o.order" "@o.order:as" "@x.order:ref""#, &native()),
        r#"o."seq" o."seq" as order_0 x.order_0"#
    );
}

#[test]
fn a_statement_that_needs_more_than_the_map_has_is_an_error() {
    for bad in [
        r#"select "@colour""#,
        "'@lost'",
        r#""@topic:colour""#,
        "/*as version*/ x /*end*/",
        "/*if tenant*/ x",
        "x /*end*/",
        "/*else*/",
        "/*if tenant*/ /*if topic*/ /*end*/",
    ] {
        render(bad, &native(), &Echo).expect_err(bad);
    }
    let missing = render(r#"select "@colour""#, &native(), &Echo).unwrap_err();
    assert!(missing.to_string().contains("`colour`"), "{missing}");
}

#[test]
fn a_common_part_has_the_alias_of_its_place() {
    assert_eq!(
        finish("where /*put o.mine*/ and /*put mine*/", &native()),
        r#"where o."tenant" = 1 and "tenant" = 1"#
    );
    let refused = render("/*put o.mnie*/", &native(), &Echo).unwrap_err().to_string();
    assert!(refused.contains("`/*put o.mnie*/` asks for `mnie`"), "{refused}");
}

#[test]
fn a_message_is_read_by_the_names_of_its_roles() {
    let columns = finish(r#""@o.message""#, &native());
    assert!(
        columns.starts_with(r#"Text(o."id" uuid) as id, null as event_id, "#),
        "{columns}"
    );
    assert!(
        columns.ends_with(r#"Bytes(o."content_hash" bytes) as content_hash"#),
        "{columns}"
    );
}

#[test]
fn an_index_is_named_after_its_table() {
    let strange = TableMap::with_prefix(r#"x"@topic" "#).unwrap();
    assert_eq!(
        finish(r#"/*if split_index*/ indexed by "@outbox+fresh" /*end*/"#, &strange),
        r#"indexed by "x""@topic"" outbox_fresh""#
    );
}

/// Names are put in once and never read again.
#[test]
fn a_name_cannot_smuggle_in_a_placeholder() {
    let map = TableMap::with_prefix(r#"'@pending'/*if x*/"@topic"#).unwrap();
    assert_eq!(finish(r#""@outbox""#, &map), r#""'@pending'/*if x*/""@topicoutbox""#);
}

/// As a text for `regclass`, whatever the schema is called.
#[test]
fn what_stands_in_the_schema_is_named_by_a_literal() {
    let map = TableMap::native_log(r#"it's "mine""#).unwrap();
    assert_eq!(
        finish("nextval('@schema.log_shard_' || 0 || '_seq')", &map),
        r#"nextval('"it''s ""mine""".log_shard_' || 0 || '_seq')"#
    );
}

#[test]
fn a_misspelt_condition_is_an_error_and_no_part_that_is_left_out() {
    let refused = |sql: &str| render(sql, &native(), &Echo).unwrap_err().to_string();
    assert_eq!(
        refused("/*if tennant*/ and 1 /*end*/"),
        "`/*if tennant*/` asks for `tennant`, which no table can have; did you mean `tenant`?"
    );
    assert_eq!(
        refused("/*if topic and failed/mood*/ 1 /*end*/"),
        "`/*if topic and failed/mood*/` asks for `failed/mood`, which no table can have; did you mean `failed`?"
    );
    // Also in a part that is left out.
    assert!(refused("/*if version*/ /*if tennant*/ 1 /*end*/ /*end*/").contains("tennant"));
    assert_eq!(
        refused(r#"/*if version*/ "@o.tennant:text" /*end*/"#),
        r#"`"@o.tennant:text"` asks for `tennant`, which no table can have; did you mean `tenant`?"#
    );
    for bad in [
        r#"/*if version*/ "@outbx" /*end*/"#,
        r#"/*if version*/ "@outbx+id" /*end*/"#,
        r#"/*if version*/ "@cursor/topic" /*end*/"#,
        r#"/*if version*/ "@topic:colour" /*end*/"#,
        r#"/*if version*/ "@retries" /*end*/"#,
        "/*if version*/ /*as tennant*/ 1 /*end*/ /*end*/",
        "/*if version*/ /*type tennant*/ 1 /*end*/ /*end*/",
    ] {
        refused(bad);
    }
    assert!(refused("/*if topic and tenant or version*/ 1 /*end*/").contains("topic and tenant"));
}
