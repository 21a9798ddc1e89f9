//! Macros that make of a payload's declaration its type, its JSON, and its members for a document that describes them.

/// Member of a payload, in words.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Name on the wire.
    pub name: &'static str,
    /// Lines of its doc comment.
    pub doc: &'static [&'static str],
    /// Absent from the wire when it is none.
    pub is_optional: bool,
}

/// Takes down the members whose values are of type `T`.
pub trait Describe<T> {
    /// The next member.
    fn member(&mut self, member: Member);
}

/// A payload, or several members of one, as `D` takes it down.
pub trait Described<D> {
    /// The shape of its object.
    const SHAPE: PayloadShape<D>;
}

/// Shape of the object that a payload is.
pub struct PayloadShape<D> {
    /// Its name in the API's document.
    pub name: &'static str,
    /// Lines of its doc comment.
    pub doc: &'static [&'static str],
    /// Has each of its members taken down, in order.
    pub describe: fn(&mut D),
}

/// Declares payloads.
macro_rules! payloads {
    ($(
        $(#[doc = $doc:literal])* $(#[derive($($derive:ident),*)])? $name:ident as $shown:ident {$(
            $(($constant:ident: $constant_type:ty = $text:literal $($constant_doc:literal)?),)?
            $(#[doc = $member_doc:literal])* $(@$mark:ident)? $field:ident: $type:ty $(as $word:ty)?,
        )*}
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq $($(, $derive)*)?)]
        #[allow(missing_docs, reason = "the name of a member says it, or its doc")]
        pub struct $name { $($(#[doc = $member_doc])* pub $field: $type,)* }

        json_payload!($name { $($(($constant = $text),)? $(@$mark)? $field,)* });

        impl<D> Described<D> for $name
        where $($(D: Describe<$constant_type>,)? D: Describe<value_type!($type $(as $word)?)>,)*
        {
            const SHAPE: PayloadShape<D> = PayloadShape {
                name: stringify!($shown),
                doc: &[$($doc),*],
                describe: |_to| {$(
                    $(Describe::<$constant_type>::member(_to, Member {
                        name: stringify!($constant), doc: &[$($constant_doc)?], is_optional: false,
                    });)?
                    Describe::<value_type!($type $(as $word)?)>::member(_to, Member {
                        name: stringify!($field), doc: &[$($member_doc),*], is_optional: is_optional!($($mark)?),
                    });
                )*},
            };
        }
    )*};
}

macro_rules! value_type {
    ($type:ty) => {
        $type
    };
    ($type:ty as $word:ty) => {
        $word
    };
}

macro_rules! is_optional {
    (optional) => {
        true
    };
    ($($flat:ident)?) => {
        false
    };
}

/// Declares the events: those whose payload is called as their kind is, and above them the others.
macro_rules! events {
    (
        apart $($apart:ident($apart_type:ident)),*;
        shared $($shared:ident($shared_type:ident)),*;
        findings $($finding:ident),*;
        $($(#[doc = $doc:literal])* $name:ident as $shown:ident { $($members:tt)* })*
    ) => {
        /// One immutable fact of a run, before it has a sequence number: the payload of a kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the kind of the same name says it")]
        pub enum Event {
            RunCreated(RunCreated),
            /// A run was created by a live session.
            SessionRunCreated(SessionRunCreated),
            /// A worker's finding; the finding's kind is the event's kind.
            Found(FindingKind, FindingPayload),
            $($apart($apart_type),)*
            $($shared($shared_type),)*
            $($name($name),)*
        }

        /// The kinds that a media worker's findings have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the kind of the same name says it")]
        pub enum FindingKind { $($finding,)* }

        impl FindingKind {
            /// The kind of the event that carries such a finding.
            pub const fn event_kind(self) -> EventKind {
                match self { $(FindingKind::$finding => EventKind::$finding,)* }
            }
        }

        impl Event {
            /// The kind of this event.
            pub fn kind(&self) -> EventKind {
                match self {
                    Event::RunCreated(_) | Event::SessionRunCreated(_) => EventKind::RunCreated,
                    Event::Found(kind, _) => kind.event_kind(),
                    $(Event::$apart(_) => EventKind::$apart,)*
                    $(Event::$shared(_) => EventKind::$shared,)*
                    $(Event::$name(_) => EventKind::$name,)*
                }
            }

            /// The payload as JSON.
            pub(crate) fn text(&self) -> Vec<u8> {
                match self {
                    Event::RunCreated(payload) => JsonObjectWriter::of(payload),
                    Event::SessionRunCreated(payload) => JsonObjectWriter::of(payload),
                    Event::Found(_, payload) => JsonObjectWriter::of(payload),
                    $(Event::$apart(payload) => JsonObjectWriter::of(payload),)*
                    $(Event::$shared(payload) => JsonObjectWriter::of(payload),)*
                    $(Event::$name(payload) => JsonObjectWriter::of(payload),)*
                }
            }

            /// The event of `kind` with this payload; the error names the field that does not fit.
            pub(crate) fn parse(kind: EventKind, text: &str) -> Result<Event, &'static str> {
                let fields = &JsonObjectReader::parse(text)?;
                Ok(match kind {
                    EventKind::RunCreated if fields.has("session_id") => {
                        Event::SessionRunCreated(JsonPayload::read(fields)?)
                    }
                    EventKind::RunCreated => Event::RunCreated(JsonPayload::read(fields)?),
                    $(EventKind::$finding => {
                        Event::Found(FindingKind::$finding, JsonPayload::read(fields)?)
                    })*
                    $(EventKind::$apart => Event::$apart(JsonPayload::read(fields)?),)*
                    $(EventKind::$shared => Event::$shared(JsonPayload::read(fields)?),)*
                    $(EventKind::$name => Event::$name(JsonPayload::read(fields)?),)*
                })
            }
        }

        impl EventKind {
            /// Shapes of its payloads, of which an event has one; none where the document describes it by itself.
            pub fn shapes<D>(self) -> Vec<PayloadShape<D>>
            where
                RunCreated: Described<D>, SessionRunCreated: Described<D>, FindingPayload: Described<D>,
                $($shared_type: Described<D>,)* $($name: Described<D>,)*
            {
                match self {
                    EventKind::RunCreated => vec![RunCreated::SHAPE, SessionRunCreated::SHAPE],
                    $(EventKind::$finding => vec![FindingPayload::SHAPE],)*
                    $(EventKind::$apart => Vec::new(),)*
                    $(EventKind::$shared => vec![$shared_type::SHAPE],)*
                    $(EventKind::$name => vec![$name::SHAPE],)*
                }
            }
        }

        payloads! { $($(#[doc = $doc])* $name as $shown { $($members)* })* }
    };
}

pub(super) use {events, is_optional, payloads, value_type};
