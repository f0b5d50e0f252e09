//! Private servers, each seen from outside.

mod kafka;
mod mariadb;
mod postgres;
mod redis;
