/**
 * How much longer a room's epoch is kept than the rest of its record: two hours.
 *
 * Epochs start at the store's clock in milliseconds, so a room whose record is gone altogether still gets a larger epoch than
 * before, unless that clock was set back meanwhile. Two hours cover what happens to clocks in practice (a correction by NTP, a fail-over to a
 * replica that is behind, a time zone mistake of one hour) and every client that may still hold frames of the old epoch (a session
 * resumes within minutes). It costs about 150 bytes of the store for each room whose record ended by itself in the last two hours; of
 * one that its owner ended, everything goes within `ENDED_ROOM_MS`.
 */
export const EPOCH_OUTLIVES_MS = 2 * 60 * 60 * 1000

/**
 * For how long a room that ended leaves a record behind: two minutes. It holds the epoch alone, for the next claim to exceed, and for whoever
 * is late by no more than a connection lives. After that a fenced write finds no record, which refuses it as well, and a new claim starts at
 * the store's clock, which is further by then.
 *
 * Only `recall` could do harm later: an owner that was replaced while it was paused would find no record, take it for lost, and write an
 * ended room again. Such an owner exists only where a room was claimed from one that had not released it. The record remembers that
 * (`contested`), and of such a room record and epoch stay as long as those of a room that no one ended. So a room that was made, played
 * and ended in good order costs a few minutes, however many are made: docs/decisions has the whole argument.
 */
export const ENDED_ROOM_MS = 2 * 60 * 1000
