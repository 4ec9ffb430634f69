/**
 * How much longer a room's epoch is kept than the rest of its record: two hours.
 *
 * Epochs start at the store's clock in milliseconds, so a room whose record is gone altogether still gets a larger epoch than
 * before, unless that clock was set back meanwhile. Two hours cover what happens to clocks in practice (a correction by NTP, a fail-over to a
 * replica that is behind, a time zone mistake of one hour) and every client that may still hold frames of the old epoch (a session
 * resumes within minutes). It costs about 150 bytes of the store for each room that ended in the last two hours.
 */
export const EPOCH_OUTLIVES_MS = 2 * 60 * 60 * 1000
