//! A strategy that is a [`Member`](super::Member) with a policy.

/// Implements the methods and the trait of such a strategy, whose field `member` it is.
macro_rules! member_strategy {
    ($strategy:ident, $policy:ident) => {
        impl $strategy {
            /// Connects `channel`, whose name is this member's, and begins to form or join the
            /// group. Returns at once; calls wait for a leader within their `max_wait`, and
            /// [`ready`](crate::KeyedMutex::ready) returns once it votes.
            ///
            /// The member is one task on the current runtime.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidOptions`](crate::Error::InvalidOptions) naming the option;
            /// [`Error::Unavailable`](crate::Error::Unavailable) if the channel does not connect,
            /// and outside a tokio runtime.
            pub async fn open(
                channel: std::sync::Arc<dyn gaggle_channels::Channel>,
                options: $crate::MemberOptions,
            ) -> Result<Self, $crate::Error> {
                let policy = $crate::member::Policy::$policy;
                Ok(Self { member: Member::open(channel, options, policy).await? })
            }

            #[cfg(any(test, feature = "testing"))]
            pub(crate) fn of(member: Member) -> Self {
                Self { member }
            }

            /// The state of the group, as far as this member knows it.
            #[must_use]
            pub fn status(&self) -> $crate::MemberStatus {
                self.member.status().borrow().0.clone()
            }

            /// How much this member remembers: its table, its log, its pending requests.
            ///
            /// # Errors
            ///
            /// `Closed`, `Failed`, `Limit` and `Unavailable` of [`Error`](crate::Error).
            pub async fn sizes(&self) -> Result<$crate::MemberSizes, $crate::Error> {
                self.member.sizes().await
            }
        }

        $crate::client::delegate::delegate_keyed_mutex!(
            $strategy,
            member,
            fn group_status(&self) -> Option<$crate::MemberStatus> {
                Some(self.status())
            }
        );
    };
}

pub(crate) use member_strategy;
