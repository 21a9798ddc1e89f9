//! Macros that derive from a payload's declaration its type, its JSON and its members for a schema.

/// Description of a payload member.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Name on the wire.
    pub name: &'static str,
    /// Lines of its doc comment.
    pub doc: &'static [&'static str],
    /// True if the member may be absent from the wire.
    pub is_optional: bool,
}

/// Receives the members whose values are of type `T`.
pub trait MemberSink<T> {
    /// Receives the next member.
    fn member(&mut self, member: Member);
}

/// Payload whose members a `D` receives.
pub trait HasShape<D> {
    /// Shape of the payload's object.
    const SHAPE: PayloadShape<D>;
}

/// Shape of a payload's object.
pub struct PayloadShape<D> {
    /// Name in the API's document.
    pub name: &'static str,
    /// Lines of its doc comment.
    pub doc: &'static [&'static str],
    /// Passes the members to a `D`, in order.
    pub describe: fn(&mut D),
}

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

        impl<D> HasShape<D> for $name
        where $($(D: MemberSink<$constant_type>,)? D: MemberSink<value_type!($type $(as $word)?)>,)*
        {
            const SHAPE: PayloadShape<D> = PayloadShape {
                name: stringify!($shown),
                doc: &[$($doc),*],
                describe: |_to| {$(
                    $(MemberSink::<$constant_type>::member(_to, Member {
                        name: stringify!($constant), doc: &[$($constant_doc)?], is_optional: false,
                    });)?
                    MemberSink::<value_type!($type $(as $word)?)>::member(_to, Member {
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

/// Declares the events. Most have a payload named as their kind. Those before them have a payload of another
/// type (`with`; the document describes those of `by_hand` itself) or are findings.
macro_rules! events {
    (
        by_hand $($by_hand:ident($by_hand_type:ident)),*;
        with $($with:ident($with_type:ident)),*;
        findings $($finding:ident),*;
        $(
            $(#[doc = $doc:literal])* $(#[derive($($derive:ident),*)])?
            $name:ident as $shown:ident { $($members:tt)* }
        )*
    ) => {
        /// Immutable fact of a run, before it has a sequence number: the payload of a kind.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the payload says it, or the kind of the same name")]
        pub enum Event {
            RunCreated(RunCreated),
            /// A run was created by a live session.
            SessionRunCreated(SessionRunCreated),
            /// A worker's finding; the finding's kind determines the event's kind.
            Found(FindingKind, FindingPayload),
            $($by_hand($by_hand_type),)*
            $($with($with_type),)*
            $($name($name),)*
        }

        /// Kinds of a media worker's findings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the kind of the same name says it")]
        pub enum FindingKind { $($finding,)* }

        impl FindingKind {
            /// Returns the kind of the event that carries such a finding.
            pub const fn event_kind(self) -> EventKind {
                match self { $(FindingKind::$finding => EventKind::$finding,)* }
            }
        }

        impl Event {
            /// Returns the kind of this event.
            pub fn kind(&self) -> EventKind {
                match self {
                    Event::RunCreated(_) | Event::SessionRunCreated(_) => EventKind::RunCreated,
                    Event::Found(kind, _) => kind.event_kind(),
                    $(Event::$by_hand(_) => EventKind::$by_hand,)*
                    $(Event::$with(_) => EventKind::$with,)*
                    $(Event::$name(_) => EventKind::$name,)*
                }
            }

            pub(crate) fn text(&self) -> Vec<u8> {
                match self {
                    Event::RunCreated(payload) => JsonObjectWriter::of(payload),
                    Event::SessionRunCreated(payload) => JsonObjectWriter::of(payload),
                    Event::Found(_, payload) => JsonObjectWriter::of(payload),
                    $(Event::$by_hand(payload) => JsonObjectWriter::of(payload),)*
                    $(Event::$with(payload) => JsonObjectWriter::of(payload),)*
                    $(Event::$name(payload) => JsonObjectWriter::of(payload),)*
                }
            }

            /// Parses the event of `kind` from its payload; the error names the invalid field.
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
                    $(EventKind::$by_hand => Event::$by_hand(JsonPayload::read(fields)?),)*
                    $(EventKind::$with => Event::$with(JsonPayload::read(fields)?),)*
                    $(EventKind::$name => Event::$name(JsonPayload::read(fields)?),)*
                })
            }
        }

        impl EventKind {
            /// Returns the shapes of the kind's payloads; none if the document describes them itself.
            pub fn shapes<D>(self) -> Vec<PayloadShape<D>>
            where
                RunCreated: HasShape<D>, SessionRunCreated: HasShape<D>, FindingPayload: HasShape<D>,
                $($with_type: HasShape<D>,)* $($name: HasShape<D>,)*
            {
                match self {
                    EventKind::RunCreated => vec![RunCreated::SHAPE, SessionRunCreated::SHAPE],
                    $(EventKind::$finding => vec![FindingPayload::SHAPE],)*
                    $(EventKind::$by_hand => Vec::new(),)*
                    $(EventKind::$with => vec![$with_type::SHAPE],)*
                    $(EventKind::$name => vec![$name::SHAPE],)*
                }
            }
        }

        payloads! {
            $($(#[doc = $doc])* $(#[derive($($derive),*)])? $name as $shown { $($members)* })*
        }
    };
}

pub(super) use {events, is_optional, payloads, value_type};
